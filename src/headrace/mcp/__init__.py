"""Evidence for assistants, by the Model Context Protocol on standard input and output.

``library`` finds what is below one directory, ``tools`` read it, ``server`` offers the tools. All only read.
A tool that starts work belongs beside them once there are plans that a person approved: it takes the id of such a
plan and nothing else.
"""
