"""A request on its way in, as the ports send it: checked, then taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.otel import RequestLimits
from penstock.server.configuration.config import Limits
from penstock.server.receiving.checker import Outcome, check
from penstock.server.refusals import Cause, Refusal

if TYPE_CHECKING:
    from penstock.otel import Signal
    from penstock.server.receiving.ingest import WayIn


async def take(
    way_in: WayIn, sent: Signal, namespace: str, data: bytes, limits: Limits | None = None
) -> None:
    """Returns when it is durable; Refusal says why it is not."""
    bounds = limits or Limits()
    most = RequestLimits(max_records=bounds.records, max_parts=bounds.parts)
    checked = check(sent, data, most, is_json=False)
    if checked.outcome is not Outcome.SOUND:
        raise Refusal(Cause.INVALID, checked.text)
    await way_in.take(sent, namespace, checked)
