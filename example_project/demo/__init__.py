"""The demo: a day at the shop, on processes that keep dying.

``run`` sets the stage and ends it; ``processes`` are the worker and Beat; ``traffic`` is what customers and the payment
provider send; ``chaos`` decides what is killed when; ``audit`` compares the books; ``report`` prints.
"""
