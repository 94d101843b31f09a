"""fedviz: watch federated optimisation live, and see where the server's error comes from."""

__version__ = "0.1.0"
