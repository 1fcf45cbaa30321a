"""Every method once more, in plain torch and as short as its equations: read these to believe the rest.

`federation.py` has what the replicas share: clients, their local training, and what is compared. Each paper
has a file: `fedproto.py` (and `local`), `protonorm.py`, `fedtgp.py`, `fedorgp.py`, `sparse.py`, `fedsap.py`
and `fedsap_ssl.py`. `simplex.py` has hpcfl's own methods, `baselines.py` the others.
`test_replicas.py` compares them with runs of hpcfl.
"""
