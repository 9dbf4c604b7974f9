"""Certificates: a claim about a network with its proof as data, and a checker that needs neither search nor solver."""
