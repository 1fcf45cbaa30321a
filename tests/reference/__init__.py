"""Every method once more, in plain torch and as short as its equations: read these to believe the rest.

`federation.py` has what the replicas share: clients, their local training, what is compared. Then there is one
file per paper: `fedproto.py` (and `local`), `protonorm.py`, `fedtgp.py`, `fedorgp.py`, `sparse.py`,
`fedsap.py` and `fedsap_ssl.py`; `simplex.py` has hpcfl's own methods, `baselines.py` the others.
`test_replicas.py` compares them with runs of hpcfl.
"""
