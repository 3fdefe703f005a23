"""The eight services of the shop, and what each says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from random import Random

Value: TypeAlias = "str | bool | int | float | bytes | list[Value] | dict[str, Value]"
"""What OTLP takes as the value of an attribute."""
Attributes: TypeAlias = "dict[str, Value]"

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.34.0"


@dataclass(frozen=True, slots=True)
class Service:
    """One of them."""

    name: str
    language: str
    version: str
    libraries: str
    """What the names of its instrumentation scopes begin with."""

    def resource(self, instance: int, random: Random) -> Attributes:
        """The attributes of one running instance."""
        host = f"{random.getrandbits(36):09x}-{random.getrandbits(20):05x}"
        return {
            "service.name": self.name,
            "service.namespace": "shop",
            "service.version": self.version,
            "service.instance.id": f"{host}-{instance}",
            "deployment.environment.name": "production",
            "k8s.pod.name": f"{self.name}-{host}",
            "process.pid": random.randrange(2, 60_000),
            "process.command_args": [f"/app/{self.name}", "--port=8080"],
            "telemetry.sdk.language": self.language,
            "telemetry.sdk.version": "1.38.0",
        }


STOREFRONT: Final = Service("storefront", "nodejs", "7.3.1", "@opentelemetry/instrumentation-")
CATALOG: Final = Service("catalog", "go", "2.19.0", "go.opentelemetry.io/contrib/")
RECOMMENDER: Final = Service("recommender", "python", "0.48.2", "opentelemetry.instrumentation.")
CART: Final = Service("cart", "dotnet", "3.2.0", "OpenTelemetry.Instrumentation.")
CHECKOUT: Final = Service("checkout", "go", "5.0.4", "go.opentelemetry.io/contrib/")
PAYMENT: Final = Service("payment", "java", "4.11.0", "io.opentelemetry.")
SHIPPING: Final = Service("shipping", "rust", "1.6.3", "opentelemetry-")
MAILER: Final = Service("mailer", "ruby", "1.9.9", "OpenTelemetry::Instrumentation::")

SERVICES: Final = (STOREFRONT, CATALOG, RECOMMENDER, CART, CHECKOUT, PAYMENT, SHIPPING, MAILER)
