.PHONY: run test
run: ; python3 bootstrap.py run
test: ; python3 bootstrap.py test
