"""Keras: precision="bfloat16" is Keras' own mixed precision, on each back end; derivatives stay in float32."""

import keras
import pytest
from cases import open_evaluator, own_values
from keras_cases import data, small_model

from workers.curvature.products import Products, ProductSettings
from workers.measurement_plan import MeasurementPlan

# Keras' own way of reading a variable or a tensor makes NumPy 2 warn.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")

PLAN = MeasurementPlan(16)


def built(policy="float32"):
    keras.config.set_dtype_policy(policy)
    try:
        return small_model(dropout=False)
    finally:
        keras.config.set_dtype_policy("float32")


def test_it_is_the_policy_of_mixed_precision():
    model, mixed = built(), built("mixed_bfloat16")
    policies = [layer.dtype_policy.name for layer in model.layers]
    expected, plain = (own_values((item, item, data(), None), PLAN)[0]["loss"] for item in (mixed, model))
    values, description = own_values((model, model, data(), None), PLAN, precision="bfloat16")
    assert values["loss"] == pytest.approx(expected, rel=1e-6)
    assert expected != pytest.approx(plain, rel=1e-5)
    assert description.plan.precision == "bfloat16"
    with open_evaluator((model, model, data(), None), precision="bfloat16").products(ProductSettings()) as shares:
        assert Products(shares).loss == pytest.approx(plain, rel=1e-6)
    assert [layer.dtype_policy.name for layer in model.layers] == policies == ["float32"] * len(policies)


@pytest.mark.parametrize(
    ("policy", "precision", "message"),
    [
        ("mixed_bfloat16", "bfloat16", "changes nothing: no layer of the network computes in float32"),
        ("float32", "tf32", 'precision="tf32" is not available for keras'),
    ],
)
def test_what_is_refused(policy, precision, message):
    model = built(policy)
    with pytest.raises(ValueError, match=message):
        open_evaluator((model, model, data(), None), precision=precision)
