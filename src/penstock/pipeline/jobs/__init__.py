"""Jobs that keep the lake in order and sum it up; each may be repeated, and be killed.

compact      small files of a day become large ones; repeats, merge
rollup       what happened, summed up: red, edges, traces; basis, histogram, schemas
expire       what is too old goes
reading, scan, parcels    rows of data files, in this process and in Spark's tasks
"""
