"""What all tests share."""

import os

# Tables and sentences that the command line prints are not broken at the width of whatever terminal there is. Here and not in a
# fixture: it is read when the command line is imported.
os.environ["COLUMNS"] = "400"
