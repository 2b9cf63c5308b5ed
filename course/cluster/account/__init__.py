"""The account of a run: what was sent and called, what it cost, and how long it takes on links that are modelled.

ledger    what every rank did, and its entries in an observation
traffic   the messages of a collective
network   links, topologies, and when a message that is sent now arrives
"""
