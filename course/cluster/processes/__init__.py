"""Ranks that are processes of this machine, over gloo or NCCL.

transports  what `run_ranks` is given; the function and its inputs as bytes
launch      one run: starts the ranks, hears them, ends them
progress    what the launcher knows of the ranks' calls
messages    what a rank and the launcher tell each other
rank_main   what the process of a rank does
port        how a rank calls the others; backends: torch.distributed's collectives; queues: messages on their way
script      hides the caller's script while a process starts
"""
