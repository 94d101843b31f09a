"""The simulation itself: local SGD batched over clients, the round loop, and the decomposition of the server's error.

`records`, `errors` and `clients` open without torch; `simulate` needs it, so import this package when a run starts.
"""
