"""One self-contained HTML page about a run: what was found, and how far to trust it.

Needs the ``report`` extra: Jinja2 for the page, Plotly for its pictures, matplotlib for images.
"""
