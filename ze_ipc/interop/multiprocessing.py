"""Ranges through multiprocessing: queues, pipes, pools, managers and arguments of processes.

A RangeHandle is data and goes through any pickle. An ImportedRange or a Reservation, which own
memory, go through multiprocessing's pickle only: the sender exports all of it when it is pickled,
and the receiver, where it is unpickled, opens it and owns an ImportedRange. Nothing needs to be
called for that. The sender may close its own as soon as it is pickled: the message holds the memory
until it is received, or for sent_handles.LINGER seconds. (A multiprocessing.Queue pickles on a
thread of its own, a little after put().)

A received range lies on a device of its backend and UUID: on one that receive_on() named, else on
one that the process opens for what it receives, and closes with the last of these ranges.
"""

from ze_ipc.pickling import TIMEOUT, Origin, receive, receive_on, send

__all__ = ["TIMEOUT", "Origin", "receive", "receive_on", "send"]
