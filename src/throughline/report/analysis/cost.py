"""Compute what a throughput costs, with prices from the configuration or else from resources/gpus.csv."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from throughline import gpus
from throughline.records import Cost, Device
from throughline.study.result_sections import Price

HOURS_A_MONTH, HOURS_A_YEAR = 720, 8760
"""The hours that a price per month counts, 30 days, and those of a year in which a device is never idle."""


@dataclass(frozen=True)
class Rate:
    """The price of one device for an hour, and its source. monthly: the same, if the node is paid by the month."""

    per_hour: float
    currency: str
    source: str
    monthly: float | None = None


def rate(device: Device | None, prices: Mapping[str, Price]) -> Rate | str:
    """Return the rate of `device`, or why there is none. If several names in `prices` fit, the longest one counts."""
    if device is None:
        return "the runs met no device"
    name = device.name
    fitting = [key for key in prices if re.search(rf"(?<!\w){re.escape(key)}(?!\w)", name, re.IGNORECASE)]
    if fitting:
        key = max(fitting, key=len)
        price, source = prices[key], f"prices.{key} of the configuration"
        monthly = price.per_month and price.per_month / (price.devices or 1) / HOURS_A_MONTH
        if price.per_hour is not None:
            return Rate(price.per_hour, price.currency, source, monthly)
        if price.purchase is not None and price.years is not None:
            hours = f"{price.years:g} years of {HOURS_A_YEAR} hours (assumed: never idle)"
            per_hour = price.purchase / (price.devices or 1) / (price.years * HOURS_A_YEAR)
            return Rate(per_hour, price.currency, f"{source}, bought: {hours}; energy and housing are not in it")
        return Rate(monthly or 0.0, price.currency, f"{source}, a month of {HOURS_A_MONTH} hours")
    gpu = gpus.find(name) if device.kind == "cuda" else None
    if gpu and gpu.price_per_hour and gpu.currency:
        return Rate(gpu.price_per_hour, gpu.currency, f"resources/gpus.csv: {gpu.price_source}")
    return f"no price is known for {name}: set prices in the configuration"


def of(samples_per_s: float | None, world: int, rated: Rate | str, total_samples: int | None) -> Cost:
    """Return what `world` devices cost at this throughput. total_samples: the samples of the whole training."""
    known = rated if isinstance(rated, Rate) else None
    per_sample = known.per_hour * world / 3600 / samples_per_s if known and samples_per_s else None
    figures = {
        "per_million_samples": per_sample * 1_000_000 if per_sample else None,
        "samples_per_currency_unit": 1 / per_sample if per_sample else None,
        "task_hours": total_samples / samples_per_s / 3600 if total_samples and samples_per_s else None,
        "task_price": per_sample * total_samples if per_sample and total_samples else None,
    }
    reasons = {name: str(rated) for name, value in figures.items() if value is None}
    if samples_per_s is None:
        reasons = dict.fromkeys(reasons, "no repeat has a throughput")
    elif not total_samples:
        reasons |= dict.fromkeys(("task_hours", "task_price"), "total_samples is not set for this benchmark")
    return Cost(
        price_per_device_hour=known.per_hour if known else None,
        currency=known.currency if known else None,
        price_source=known.source if known else None,
        monthly_price_per_device_hour=known.monthly if known else None,
        total_samples=total_samples,
        reasons=reasons,
        **figures,
    )
