"""How fast fedviz is: measured against a plain PyTorch loop and against what the machine can do. `python -m fedviz bench`.

`timing` takes turns and compares, `plain` is the yardstick, `machine` says what the hardware reaches, `images` stands in for data that
is not at hand, `workloads` are the measurements, `report` makes tables of them. Nothing here is used by a run or by the page.
"""
