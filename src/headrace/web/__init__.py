"""``headrace serve``: history is collected each minute and shown as pages, tables and live figures.

``minute`` turns what was sampled into rows of the archive, ``collector`` does so for every host; ``guard`` decides
who may see what; ``tables`` holds every table once, for the pages and for ``/api``; ``pages`` and ``app`` serve
them.
"""
