"""Names, methods, attributes and settings of rlpyt 0.1, and what to do about each.

Nothing imports this room before it is needed; `rlpyt/old_rlpyt.py` has the ways in.
"""
