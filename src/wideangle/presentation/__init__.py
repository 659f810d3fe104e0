"""What a family of models gives to runs, plots, report and the command line.

A family is an estimator (:mod:`wideangle.base`), a :class:`~.family.Presentation` of it, and a line
in :mod:`wideangle.registry`; no higher layer refers to a family by name.
"""
