"""What all HTTP ports have in common, below what they answer.

In come connections; out go requests with a bounded body, for the applications of `receiving` and
`web`, and their answers.

server          uvicorn with our protocol; sockets that workers share
protocol        a request from its bytes, in time and within its bounds
sites           only for the names that are ours, and for no pages of others
head, bodies    of a request; `answers`: refusals, in the words of OTLP
"""
