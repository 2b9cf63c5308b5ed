"""What a training run will need, by formulas, before anything is run.

memory     bytes of states, activations and buffers
published  figures that papers give, and what the formulas say of the same settings
"""
