from __future__ import annotations

from pathlib import Path

from demo.orders import (
    DECLINED_CARD,
    ORDERS_FILE,
    SCARCE,
    WITHDRAWN,
    make_orders,
    read_orders_file,
    write_orders_file,
)


def test_the_file_is_what_its_seed_gives(tmp_path: Path) -> None:
    write_orders_file(make_orders(2026), tmp_path / "orders.json")
    assert (tmp_path / "orders.json").read_bytes() == ORDERS_FILE.read_bytes()


def test_the_file_is_read_as_it_was_made() -> None:
    assert read_orders_file() == make_orders(2026)


def test_the_file_has_500_orders_and_every_way_to_fail() -> None:
    orders = read_orders_file().orders
    assert len({order.checkout_token for order in orders}) == 500
    payments = [order.payment for order in orders if order.payment]
    assert len({payment.event_id for payment in payments}) == len(payments) < 500
    assert any(payment.card == DECLINED_CARD for payment in payments)
    assert any(payment.after_minutes > 30 for payment in payments)
    assert any(payment.after_minutes == 0 for payment in payments)
    assert any(payment.deliveries == 2 for payment in payments)
    assert any(order.submits == 2 for order in orders)
    assert any(order.address.startswith("PO Box") for order in orders)
    assert any(WITHDRAWN in order.basket for order in orders)


def test_only_the_scarce_product_can_sell_out() -> None:
    content = read_orders_file()
    for product in content.products:
        ordered = sum(order.basket.get(product.sku, 0) for order in content.orders)
        assert (ordered > product.stock) == (product.sku == SCARCE)
