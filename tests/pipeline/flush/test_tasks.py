"""Functions run in Spark's tasks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from penstock.pipeline.tasks import run_in_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_results_come_in_the_order_of_the_orders(spark: SparkSession) -> None:
    """Each from a process that is not this one."""
    here = os.getpid()

    def answer(order: str) -> tuple[str, bool]:
        return order.upper(), os.getpid() == here

    orders = [f"order {number}" for number in range(7)]
    found = run_in_tasks(spark, answer, orders)
    assert found == [(order.upper(), False) for order in orders]


def test_no_orders_have_no_results(spark: SparkSession) -> None:
    """Spark is not asked at all."""
    assert run_in_tasks(spark, str, []) == []


def test_error_of_a_task_reaches_the_caller(spark: SparkSession) -> None:
    """With its words."""

    def fails(order: int) -> int:
        if order == 2:
            raise ValueError("two is too many")
        return order

    with pytest.raises(Exception, match="two is too many"):
        run_in_tasks(spark, fails, [1, 2, 3])
