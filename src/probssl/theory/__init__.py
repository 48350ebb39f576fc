"""Closed forms: what an optimal encoder must look like, what its loss must be, and which failures a loss leaves open.

Plain numpy and scipy. Every function states formula, source and assumptions, and refuses input that breaks them.
"""
