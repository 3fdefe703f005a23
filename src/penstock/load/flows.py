"""Who calls whom in the shop: a tree of calls for each thing that a customer does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.load.calls import http, kafka, number, one_of, page, redis, rpc, sql, step, text
from penstock.load.services import (
    CART,
    CATALOG,
    CHECKOUT,
    MAILER,
    PAYMENT,
    RECOMMENDER,
    SHIPPING,
    STOREFRONT,
    Value,
)

if TYPE_CHECKING:
    from random import Random


def _skus(random: Random) -> Value:
    return [f"SKU-{random.randrange(10**5):05d}" for _ in range(random.randint(1, 4))]


def _total(random: Random) -> Value:
    return round(random.lognormvariate(3.6, 0.8), 2)


_PRODUCT = sql(
    CATALOG, "SELECT", "products", "SELECT id, name, price, stock FROM products WHERE id = $1"
)
_RECOMMENDED = http(
    STOREFRONT,
    RECOMMENDER,
    "GET",
    "/recommendations",
    "/recommendations",
    redis(RECOMMENDER, "MGET", text("MGET similar:{} popular", 10**5)),
    step(RECOMMENDER, "rank", 9, app__candidates=number(500), app__model="two-tower-v12"),
    work_ms=4,
    fails=0.01,
)
_CART = rpc(
    STOREFRONT,
    CART,
    "GetCart",
    redis(CART, "HGETALL", text("HGETALL cart:{}", 10**6)),
    attributes={"shop.cart.items": number(12)},
)
_PAYMENT = rpc(
    CHECKOUT,
    PAYMENT,
    "Charge",
    step(PAYMENT, "assess_risk", 6, app__risk=lambda random: round(random.random(), 4)),
    sql(PAYMENT, "INSERT", "charges", "INSERT INTO charges (id, order_id, cents) VALUES (?, ?, ?)"),
    attributes={
        "shop.order.total": _total,
        "shop.payment.method": one_of("card", "card", "invoice", "wallet"),
        "shop.payment.token": lambda random: random.randbytes(12).replace(b"\xff", b"\0"),
    },
    work_ms=60,
    fails=0.03,
    error=("CardDeclined", "the issuer declined the charge: insufficient funds"),
)
_ORDER = rpc(
    STOREFRONT,
    CHECKOUT,
    "PlaceOrder",
    rpc(CHECKOUT, CART, "GetCart", redis(CART, "HGETALL", text("HGETALL cart:{}", 10**6))),
    http(CHECKOUT, CATALOG, "POST", "/products/reserve", "/products/reserve", _PRODUCT),
    http(
        CHECKOUT,
        SHIPPING,
        "POST",
        "/quote",
        "/quote",
        step(SHIPPING, "pack", 1.2, app__boxes=number(4), app__kg=_total),
    ),
    _PAYMENT,
    sql(
        CHECKOUT,
        "INSERT",
        "orders",
        "INSERT INTO orders (id, customer, cents, placed_at) VALUES ($1, $2, $3, now())",
    ),
    kafka(CHECKOUT, "orders", MAILER, step(MAILER, "render", 8, app__template="order-placed")),
    rpc(CHECKOUT, CART, "EmptyCart", redis(CART, "DEL", text("DEL cart:{}", 10**6))),
    attributes={
        "shop.order.id": lambda random: f"O-{random.getrandbits(40):010x}",
        "shop.order.total": _total,
        "shop.order.skus": _skus,
        "shop.order.address": lambda random: {
            "country": random.choice(("DE", "FR", "IN", "US")),
            "zip": f"{random.randrange(10**5):05d}",
            "business": random.random() < 0.2,
        },
    },
    work_ms=5,
)

BROWSE: Final = page(
    "GET",
    "/products/:id",
    text("/products/{}", 10**5),
    http(
        STOREFRONT,
        CATALOG,
        "GET",
        "/products/{id}",
        text("/products/{}", 10**5),
        redis(CATALOG, "GET", text("GET product:{}", 10**5)),
        _PRODUCT,
    ),
    _RECOMMENDED,
    tolerant=True,
)
SEARCH: Final = page(
    "GET",
    "/search",
    "/search",
    http(
        STOREFRONT,
        CATALOG,
        "GET",
        "/search",
        "/search",
        sql(
            CATALOG,
            "SELECT",
            "products",
            "SELECT id, name, price FROM products WHERE search @@ plainto_tsquery($1) LIMIT 50",
            18,
        ),
        work_ms=8,
    ),
)
VIEW_CART: Final = page("GET", "/cart", "/cart", _CART, _RECOMMENDED, tolerant=True)
ADD_TO_CART: Final = page(
    "POST",
    "/cart",
    "/cart",
    rpc(
        STOREFRONT,
        CART,
        "AddItem",
        redis(CART, "HSET", text("HSET cart:{}", 10**6)),
        attributes={"shop.sku": text("SKU-{:05d}", 10**5), "shop.quantity": number(5)},
    ),
)
PLACE_ORDER: Final = page("POST", "/checkout", "/checkout", _CART, _ORDER)

FLOWS: Final = ((BROWSE, 45), (SEARCH, 20), (VIEW_CART, 15), (ADD_TO_CART, 12), (PLACE_ORDER, 8))
"""What customers do, and how often."""
