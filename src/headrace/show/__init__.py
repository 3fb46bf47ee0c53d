"""Parts of a page, and their three renderers: HTML, terminal, JSON.

In: ``parts`` (a page is a list of sections, a section a list of parts) and figures (``charts``).
Out: one HTML file without network requests (``html``), lines of a terminal (``terminal``), plain values
(``jsonform``), and the short ``notice`` that ``tell`` sends; ``text`` has digits, units and the cleaning of
text.
Entry: ``html.render``, ``terminal.render``, ``jsonform.render``.
Holds: captured text is escaped in one place of each renderer. A figure is a plain dictionary, so that no chart
library is loaded to write a page. What is shown, and in which order, is decided in the rooms.
Imports: base.
"""
