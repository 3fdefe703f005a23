"""Arrow Flight: bundles for remote subscribers, and hot rows.

In come calls over the network, each with a token; out go batches, and answers for subscribers. A
process of its own takes the calls and asks the workers, on sockets that only it may open.

process         that process
front           the port: bounded, and known who it is, before Arrow sees a byte
service         what each call may do; `registrations`: which token keeps segments by a subscriber
worker_socket   the worker's side: its stores; `deliveries`: bundles that are handed out
hot_stream      what is in the log and in no segment yet
"""
