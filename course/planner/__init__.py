"""What a training run will need, by formulas, before anything is run.

memory     bytes of states, activations and buffers
sharding   bytes of states on each of many ranks, under each stage of ZeRO, and days of a run
published  figures that papers give, and what the formulas say of the same settings
"""
