"""Who is admitted, in every combination that a policy can say."""

from __future__ import annotations

import os

import pytest

from ze_ipc import policy as policy_module
from ze_ipc.policy import Peer, Policy, Verdict

US = os.geteuid()
OTHER = US + 4242


@pytest.mark.parametrize(
    ("policy", "peer", "opens", "verdict"),
    [
        (Policy(), Peer(1, US, 0), 0, Verdict.ADMITTED),
        (Policy(), Peer(1, OTHER, 0), 0, Verdict.REFUSED),
        (Policy(), Peer(0, US, 0), 10**9, Verdict.ADMITTED),
        (Policy(uids=frozenset({OTHER})), Peer(1, OTHER, 0), 0, Verdict.ADMITTED),
        (Policy(uids=frozenset({OTHER})), Peer(1, US, 0), 0, Verdict.REFUSED),
        (Policy(uids=frozenset()), Peer(1, US, 0), 0, Verdict.REFUSED),
        (Policy(pids=frozenset({7})), Peer(7, US, 0), 0, Verdict.ADMITTED),
        (Policy(pids=frozenset({7})), Peer(8, US, 0), 0, Verdict.REFUSED),
        (Policy(max_opens=2), Peer(1, US, 0), 1, Verdict.ADMITTED),
        (Policy(max_opens=2), Peer(1, US, 0), 2, Verdict.EXPIRED),
        (Policy(not_after=100.0), Peer(1, US, 0), 0, Verdict.ADMITTED),
        (Policy(not_after=99.0), Peer(1, US, 0), 0, Verdict.EXPIRED),
        (Policy(not_after=99.0), Peer(1, OTHER, 0), 0, Verdict.REFUSED),
    ],
)
def test_judge(policy: Policy, peer: Peer, opens: int, verdict: Verdict) -> None:
    assert policy.judge(peer, opens=opens, now=100.0) is verdict


@pytest.mark.parametrize("maps_every_uid", [False, True])
def test_overflow_uid_is_nobody_in_a_user_namespace(
    monkeypatch: pytest.MonkeyPatch, maps_every_uid: bool
) -> None:
    monkeypatch.setattr(policy_module, "maps_every_uid", lambda: maps_every_uid)
    policy = Policy(uids=frozenset({65534}))
    verdict = policy.judge(Peer(1, 65534, 65534), opens=0, now=0.0)
    assert verdict is (Verdict.ADMITTED if maps_every_uid else Verdict.REFUSED)


def test_admits_others() -> None:
    assert not Policy().admits_others
    assert not Policy(uids=frozenset({US})).admits_others
    assert Policy(uids=frozenset({US, OTHER})).admits_others
