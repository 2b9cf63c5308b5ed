"""What ranks can say to one another, and what comes of it, whatever carries it.

comm          the verbs of a communicator, and the port of a transport behind it
posted        calls that were made, and in which words it is told that they do not fit
matching      where the calls of all ranks meet
virtual_time  which of them is made next where time is virtual: on simulated and on brokered ranks
transport     what a transport is asked to run, and what it gives back
failures      how a run fails, in one sentence
rank_output   what ranks print
"""
