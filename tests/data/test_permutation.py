from __future__ import annotations

import pytest

from interlingua.data.stream import Permutation, key_of, mix

MIXED = [16294208416658607535, 3238513264303145797, 12278830906580874649]
KEY = 11132678856793633452


@pytest.mark.slow
def test_is_a_bijection() -> None:
    orders = {n: Permutation(n, key_of("test", n)) for n in [*range(1, 70), 255, 256, 257, 1000, 4095, 4097, 20_000]}
    assert [n for n, order in orders.items() if sorted(order[i] for i in range(n)) != list(range(n))] == []


def test_keys_give_different_orders_and_the_same_key_the_same() -> None:
    orders = {tuple(Permutation(50, key)[i] for i in range(50)) for key in range(100)}
    assert len(orders) == 100
    assert [Permutation(50, 7)[i] for i in range(50)] == [Permutation(50, 7)[i] for i in range(50)]


@pytest.mark.slow
def test_every_place_is_reached_about_equally_often() -> None:
    n, draws = 10, 20_000
    counts = [[0] * n for _ in range(n)]
    for key in range(draws):
        order = Permutation(n, key_of(key))
        for place in range(n):
            counts[place][order[place]] += 1
    expected = draws / n
    chi_square = sum((count - expected) ** 2 / expected for row in counts for count in row)
    assert chi_square < 150  # 81 degrees of freedom: the 99.999% point is about 145


def test_neighbours_do_not_stay_neighbours() -> None:
    order = Permutation(1 << 16, key_of(0))
    steps = [order[i + 1] - order[i] for i in range(2000)]
    assert len(set(steps)) > 1900


def test_bounds() -> None:
    with pytest.raises(IndexError):
        Permutation(5, 0)[5]
    with pytest.raises(ValueError, match="0 things"):
        Permutation(0, 0)


def test_mix_is_fixed_for_ever() -> None:
    assert [mix(0, 1), mix(1, 0), mix(2**64 - 1, 2**63)] == MIXED
    assert key_of("a", 1) == KEY
