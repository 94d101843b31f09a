"""The page of all runs, and the admin view: what can be found, changed, compared, brought in, and by whom."""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qs

import pytest
from streamlit.testing.v1 import AppTest

from fedviz.config import SimulationConfig
from fedviz.runs import export
from fedviz.runs.manager import RunManager
from fedviz.runs.visitor import LOCAL, Visitor
from fedviz.ui import admin, manager, run_list, words
from tests.runs.test_imports import as_file, exported
from tests.ui.conftest import ROOT, TOKEN, charts, until
from tests.ui.test_page import button, said, small


def done(runs: RunManager, config: SimulationConfig, visitor: Visitor = LOCAL):
    run = runs.submit(config, visitor=visitor)
    until(lambda: not run.live)
    return run


def open_list(**parameters: str) -> AppTest:
    page = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    page.run()
    page.switch_page("pages/runs.py")
    for name, value in parameters.items():
        page.query_params[name] = value
    page.run()
    assert not page.exception
    return page


def listed(page: AppTest) -> list[str]:
    """Ids of the runs in the list, from top to bottom."""
    links = (
        parse_qs(link.proto.query_string).get("run") for link in page.get("page_link") if "Back" not in link.proto.label
    )
    return [run[0] for run in links if run]


def open_menu(page: AppTest, run_id: str) -> AppTest:
    page.session_state[f"menu-{run_id}"] = True
    return page.run()


def test_the_list_reads_the_newest_runs_and_older_ones_on_demand(runs, monkeypatch):
    made = [done(runs, small(seed=seed)) for seed in range(3)]
    monkeypatch.setattr(run_list, "LOADED", 2)
    asked = []
    all_of_them = runs.runs
    monkeypatch.setattr(runs, "runs", lambda *who, limit: asked.append(limit) or all_of_them(*who, limit=limit))
    page = open_list()
    assert listed(page) == [made[2].id, made[1].id]
    page.button(key="older_runs").click().run()
    assert listed(page) == [made[2].id, made[1].id, made[0].id]
    assert max(asked) == 5  # one more than is shown tells whether there are others
    assert not [each for each in page.button if each.key == "older_runs"]


def test_runs_are_found_by_words_method_state_and_put_in_order(runs):
    first = done(runs, small(seed=1))
    second = done(runs, small(seed=2, algorithm={"name": "scaffold"}))
    runs.rename(first.id, "Parabolas on Monday", LOCAL)
    page = open_list()
    assert listed(page) == [second.id, first.id]
    page.text_input(key="search").set_value("monday parabolas").run()
    assert listed(page) == [first.id]
    page.text_input(key="search").set_value("").run()
    page.multiselect(key="method").set_value(["SCAFFOLD"]).run()
    assert listed(page) == [second.id]
    page.multiselect(key="method").set_value([]).run()
    page.selectbox(key="order").set_value("Oldest first").run()
    assert listed(page) == [first.id, second.id]


def test_search_stands_in_the_address(runs):
    first = done(runs, small(seed=1))
    done(runs, small(seed=2, algorithm={"name": "scaffold"}))
    runs.rename(first.id, "Monday", LOCAL)
    assert listed(open_list(search="monday")) == [first.id]


def test_a_run_is_renamed_published_and_deleted_after_a_question(runs):
    run = done(runs, small())
    page = open_menu(open_list(), run.id)
    page.text_input(key=f"name-{run.id}").set_value("Two parabolas").run()
    assert runs.get(run.id).title == "Two parabolas"
    open_menu(page, run.id).toggle(key=f"publish-{run.id}").set_value(True).run()
    assert runs.get(run.id).published
    button(open_menu(page, run.id), f"delete-{run.id}").click().run()
    assert runs.get(run.id) is not None
    button(page, "delete_now").click().run()
    assert not page.exception
    assert runs.get(run.id) is None
    assert listed(page) == []


def test_why_a_name_is_refused_stands_below_its_field(runs):
    first, second = done(runs, small()), done(runs, small(seed=1))
    page = open_menu(open_menu(open_list(), first.id), second.id)
    page.text_input(key=f"name-{first.id}").set_value("a\u200db").run()
    assert runs.get(first.id).title == ""
    assert len(page.error) == 1

    def kinds(block) -> list[tuple[str, str]]:
        """Of the elements around the refusal."""
        inside = list(getattr(block, "children", {}).values())
        if any(each.type == "error" for each in inside):
            return [(each.type, getattr(each, "key", "")) for each in inside]
        return next(filter(None, map(kinds, inside)), [])

    assert ("text_input", f"name-{first.id}") in kinds(page.main)
    assert not page.run().error


def test_a_link_to_runs_that_are_not_here_says_how_many(runs):
    first = done(runs, small())
    lines = [line.value for line in open_list(compare=f"{first.id}, nobody, noone").caption]
    assert any("compares 2 runs more, not kept here" in line for line in lines)
    assert not any("not kept here" in line.value for line in open_list(compare=f" {first.id}").caption)


def test_a_deletion_can_be_called_off(runs):
    run = done(runs, small())
    page = open_menu(open_list(), run.id)
    button(page, f"delete-{run.id}").click().run()
    button(page, "keep").click().run()
    assert not page.exception
    assert listed(page) == [run.id]


def test_up_to_six_runs_are_drawn_over_one_another(runs):
    made = [done(runs, small(seed=seed)) for seed in range(7)]
    page = open_list()
    for run in made[:6]:
        page.checkbox(key=f"compare-{run.id}").set_value(True).run()
    assert not page.exception
    assert page.checkbox(key=f"compare-{made[6].id}").disabled
    assert "6 is the most." in [each.value for each in page.caption]
    button(page, "compare").click().run()
    loss = charts(page)["compared-loss"]
    assert len(loss["data"]) == 6
    assert len({(t["line"]["color"], t["line"]["dash"]) for t in loss["data"]}) == 6
    assert page.checkbox(key=f"compare-{made[6].id}").disabled
    button(page, "clear").click().run()
    assert not any(box.value for box in page.checkbox)
    assert charts(page) == {}
    assert not page.query_params


def test_ticks_only_collect_until_compare_is_pressed(runs):
    made = [done(runs, small(seed=seed)) for seed in range(3)]
    page = open_list()
    page.checkbox(key=f"compare-{made[0].id}").set_value(True).run()
    assert button(page, "compare").disabled
    page.checkbox(key=f"compare-{made[2].id}").set_value(True).run()
    assert charts(page) == {}
    assert page.query_params["ticked"] == f"{made[0].id},{made[2].id}"
    assert button(page, "compare").label == "Compare 2 runs"
    button(page, "compare").click().run()
    assert len(charts(page)["compared-loss"]["data"]) == 2
    assert button(page, "compare").disabled  # they are shown
    page.checkbox(key=f"compare-{made[1].id}").set_value(True).run()
    assert len(charts(page)["compared-loss"]["data"]) == 2
    assert not button(page, "compare").disabled
    for run in made:
        page.checkbox(key=f"compare-{run.id}").set_value(False).run()
    assert len(charts(page)["compared-loss"]["data"]) == 2
    assert page.query_params["ticked"] == ""


def test_two_ticks_in_one_message_both_count_and_a_seventh_is_told(runs):
    """A browser sends two fast ticks as one."""
    made = [done(runs, small(seed=seed)) for seed in range(7)]
    page = open_list()
    for run in made[:2]:
        page.checkbox(key=f"compare-{run.id}").set_value(True)
    page.run()
    assert button(page, "compare").label == "Compare 2 runs"
    for run in made[2:]:
        page.checkbox(key=f"compare-{run.id}").set_value(True)
    page.run()
    assert "6 is the most: untick 1." in [each.value for each in page.caption]
    assert button(page, "compare").disabled


def test_ticks_of_a_browser_that_has_not_heard_of_the_new_address_count(runs, double_clicks):
    """What it sends meanwhile has the old address."""
    first, second = done(runs, small(seed=1)), done(runs, small(seed=2))
    page = open_list(search="seed 1")
    page.checkbox(key=f"compare-{first.id}").set_value(True).run()
    page.text_input(key="search").set_value("seed 2").run()
    del page.query_params["ticked"]
    page.checkbox(key=f"compare-{second.id}").set_value(True).run()
    assert button(page, "compare").label == "Compare 2 runs"
    button(page, "compare").click().run()
    del page.query_params["compare"]
    assert len(charts(page.run())["compared-loss"]["data"]) == 2


def test_an_address_that_the_browser_did_not_get_is_written_again(runs, double_clicks, monkeypatch):
    """Streamlit ends a page where it tells the browser anything, if the next message is there."""
    run = done(runs, small())
    page = open_list()
    with monkeypatch.context() as lost:
        lost.setattr(run_list, "_write_address", lambda ticked, compared: None)
        page.checkbox(key=f"compare-{run.id}").set_value(True).run()
    assert "ticked" not in page.query_params
    page.run()
    assert page.query_params["ticked"] == run.id


def test_a_link_to_a_comparison_ticks_its_runs_and_back_unticks_them(runs):
    first, second = done(runs, small(seed=1)), done(runs, small(seed=2))
    page = open_list(compare=f"{first.id},{second.id}")
    assert [box.value for box in page.checkbox] == [True, True]
    page.query_params["ticked"] = first.id
    del page.query_params["compare"]
    page.run()
    assert [box.value for box in page.checkbox] == [False, True]
    assert charts(page) == {}


def test_a_link_to_a_comparison_shows_it_to_who_has_no_runs(hosted):
    alice = Visitor.of_secret("a" * 43)
    made = [done(hosted, small(seed=seed), alice) for seed in (1, 2)]
    page = open_list(compare=",".join(run.id for run in made))
    assert listed(page) == []
    assert len(charts(page)["compared-loss"]["data"]) == 2


def test_a_deleted_run_leaves_the_comparison_also_where_it_is_kept_for_one_that_continues_it(runs):
    made = [done(runs, small(seed=seed)) for seed in (1, 2)]
    runs.fork(made[0].id, 3, small(seed=1, algorithm={"name": "scaffold"}), visitor=LOCAL)
    page = open_list(compare=",".join(run.id for run in made))
    button(open_menu(page, made[0].id), f"delete-{made[0].id}").click().run()
    button(page, "delete_now").click().run()
    assert not page.exception
    assert runs.get(made[0].id) is not None
    assert len(charts(page)["compared-loss"]["data"]) == 1


def test_the_compared_loss_has_a_log_scale_that_stands_in_the_address(runs):
    config = SimulationConfig.read({"rounds": 4}).to_dict()  # of images; an objective chooses its scale itself
    made = [runs.import_run(as_file(exported(config=config)), LOCAL) for _ in range(2)]
    link = ",".join(run.id for run in made)

    def scale(page: AppTest) -> str | None:
        return charts(page)["compared-loss"]["layout"]["yaxis"].get("type")

    page = open_list(compare=link)
    assert scale(page) is None
    page.segmented_control(key="draw_loss_scale").set_value("log").run()
    assert scale(page) == "log"
    assert page.query_params["draw_loss_scale"] == "Log"


def test_runs_of_one_name_are_told_apart_in_the_charts_by_what_differs(runs):
    made = [
        done(runs, small(seed=1)),
        done(runs, small(seed=2, client_lr=0.002)),
        done(runs, small(algorithm={"name": "sgd"})),
    ]
    runs.rename(made[2].id, "a<b> & *c*", LOCAL)
    page = open_list(order="Oldest first")
    for run in made:
        page.checkbox(key=f"compare-{run.id}").set_value(True).run()
    button(page, "compare").click().run()
    first, second, third = dict.fromkeys(trace["name"] for trace in charts(page)["compared-loss"]["data"])
    assert first.endswith(f"· client rate {made[0].config.client_lr:g} · seed 1")
    assert second.endswith("· client rate 0.002 · seed 2")
    assert third == "a<b> & *c*"  # the charts make markup harmless themselves


def test_a_run_is_found_by_its_settings_and_says_what_is_unusual_and_how_far_it_got(runs):
    found = done(runs, small(seed=77, client_lr=0.003))
    other = runs.submit(small(seed=1, rounds=20_000), visitor=LOCAL)
    runs.set_pace(other.id, LOCAL, 10.0)
    until(lambda: other.round > 0)
    runs.stop(other.id, LOCAL)
    assert listed(open_list(search="seed 77")) == [found.id]
    assert listed(open_list(search="client rate 0.003")) == [found.id]
    assert listed(open_list(search=found.id[:8])) == [found.id]
    assert listed(open_list(search=found.id[1:9])) == []
    page = open_list(search="stopped")
    assert listed(page) == [other.id]
    facts = [re.sub(r"\\(.)", r"\1", each.value) for each in page.caption]
    assert any(re.search(r"20,000 rounds · Stopped after round \d+ · seed 1", each) for each in facts)


def test_runs_chosen_to_be_compared_stay_so_while_one_searches_for_another_and_in_a_link(runs):
    first, second = done(runs, small(seed=1)), done(runs, small(seed=2))
    page = open_list(search="seed 1")
    page.checkbox(key=f"compare-{first.id}").set_value(True).run()
    page.text_input(key="search").set_value("seed 2").run()
    page.checkbox(key=f"compare-{second.id}").set_value(True).run()
    button(page, "compare").click().run()
    assert len(charts(page)["compared-loss"]["data"]) == 2
    page.text_input(key="search").set_value("nothing of the kind").run()
    assert len(charts(page)["compared-loss"]["data"]) == 2
    linked = open_list(compare=f"{second.id},{first.id},nobody,,{second.id}")
    assert len(charts(linked)["compared-loss"]["data"]) == 2
    assert [box.value for box in linked.checkbox] == [True, True]
    linked.checkbox(key=f"compare-{first.id}").set_value(False).run()
    assert linked.query_params["ticked"] == second.id
    alone = open_list(compare=second.id)
    assert len(charts(alone)["compared-loss"]["data"]) == 1


def test_an_exported_run_comes_back_the_same(runs):
    run = done(runs, small())
    text = run_list._json(run.id)
    page = open_list()
    page.file_uploader(key="import-0").upload("run.json", text.encode(), "application/json").run()
    assert not page.exception
    assert [each.value for each in page.success] == ["The run was imported."]
    newest = next(each for each in runs.runs(LOCAL) if each.id != run.id)
    again = runs.get(newest.id)
    assert again.records.dicts() == run.records.dicts()
    assert again.config == run.config
    assert export.to_json(again)["records"] == json.loads(text)["records"]


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff\xfe", b'{"schema": 99}', b"[" * 100_000, b"null"])
def test_what_is_no_run_is_refused_in_words(runs, content):
    page = open_list()
    page.file_uploader(key="import-0").upload("run.json", content, "application/json").run()
    assert not page.exception
    assert len(page.error) == 1
    assert runs.runs(LOCAL) == []


def test_what_came_of_an_import_is_said_where_the_file_was_chosen_and_by_its_name(runs):
    page = open_list()
    page.file_uploader(key="import-0").upload("a*b*.json", b"null", "application/json").run()
    [popover] = page.get("popover")
    [error] = popover.get("error")
    assert error.value.startswith(words.plain("a*b*.json was not imported. The file is not a run"))
    file = as_file(exported(title="From *elsewhere*"))
    page.file_uploader(key="import-1").upload("run.json", file, "application/json").run()
    assert not page.error
    assert not page.toast
    popover = page.get("popover")[0]
    assert [each.value for each in popover.get("success")] == ["The run was imported."]
    assert words.plain("From *elsewhere*") in popover.get("page_link")[0].proto.label


def test_others_see_what_is_published_and_cannot_change_it(hosted):
    alice = Visitor.of_secret("a" * 43)
    kept, given = done(hosted, small(seed=1), alice), done(hosted, small(seed=2), alice)
    hosted.publish(given.id, True, alice)
    page = open_list()
    assert listed(page) == [given.id]
    assert kept.id not in str(page)
    open_menu(page, given.id)
    assert not page.text_input(key="search").disabled
    assert [b.key for b in page.button if b.key and b.key.startswith("delete-")] == []
    assert "keeps no cookie" in said(page)


def test_the_admin_view_opens_with_the_token_only(hosted):
    admin._attempts.clear()
    page = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30).run()
    page.switch_page("pages/admin.py").run()
    page.text_input(key="admin_token").set_value("guess").run()
    assert not page.exception
    assert "That is not the token" in page.error[0].value
    assert "Limits" not in [each.value for each in page.subheader]
    page.text_input(key="admin_token").set_value(TOKEN).run()
    assert "Limits" in [each.value for each in page.subheader]
    assert TOKEN not in str(page)


def test_an_admin_ends_anybodys_run(hosted):
    admin._attempts.clear()
    run = hosted.submit(small(rounds=20_000, probe_every=0), visitor=Visitor.of_secret("a" * 43))
    page = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30).run()
    page.switch_page("pages/admin.py").run()
    page.text_input(key="admin_token").set_value(TOKEN).run()
    button(page, f"cancel-{run.id}").click().run()
    assert not page.exception
    until(lambda: run.ended)
    assert str(run.state) == "stopped"


def test_without_a_token_there_is_no_admin_view(runs):
    page = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30).run()
    page.switch_page("pages/admin.py").run()
    assert admin.OFF in [each.value for each in page.info]
    assert not page.text_input


def test_after_five_wrong_tokens_the_right_one_waits_a_minute():
    attempts = admin.Attempts()
    assert all("not the token" in attempts.check("wrong", TOKEN, now=float(second)) for second in range(5))
    assert attempts.check(TOKEN, TOKEN, now=10.0) == "Too many wrong tokens: try again in 50 s."
    assert attempts.check(TOKEN, TOKEN, now=60.0) == ""


def test_wrong_tokens_make_further_ones_slow_for_a_minute():
    attempts = admin.Attempts()
    delays = [attempts.slow_down(now=float(second)) for second in range(30)]
    assert delays[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert max(delays) == delays[-1] == 2.0
    assert attempts.slow_down(now=95.0) == pytest.approx(0.1)


def test_others_who_guess_do_not_lock_the_operator_out(hosted, monkeypatch):
    admin._attempts.clear()
    monkeypatch.setattr(admin, "DELAY", 0.0)

    def typed(page: AppTest, token: str) -> AppTest:
        return page.text_input(key="admin_token").set_value(token).run()

    def come() -> AppTest:
        page = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30).run()
        return page.switch_page("pages/admin.py").run()

    guesser = come()
    for number in range(6):
        typed(guesser, f"guess {number}")
    assert "Too many wrong tokens" in guesser.error[0].value
    assert "Too many wrong tokens" in typed(guesser, TOKEN).error[0].value
    assert "Limits" in [each.value for each in typed(come(), TOKEN).subheader]


def test_the_manager_of_the_page_has_the_limits_of_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDVIZ_HOME", str(tmp_path))
    monkeypatch.setenv("FEDVIZ_QUEUE", "7")
    manager.run_manager.clear()
    try:
        assert manager.run_manager().limits.queue_length == 7
    finally:
        manager.run_manager().shutdown()
        manager.run_manager.clear()
