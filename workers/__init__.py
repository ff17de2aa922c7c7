"""Where a loss is measured: evaluators (one for each framework) and pools (in-process, Ray)."""

from .errors import CallbackFunctionError as CallbackFunctionError
from .errors import FrozenNetworkError as FrozenNetworkError
from .errors import NondeterministicLossError as NondeterministicLossError
from .errors import PoolError as PoolError
from .errors import SamplesError as SamplesError
from .evaluator import Evaluator as Evaluator
from .evaluator import EvaluatorDescription as EvaluatorDescription
from .evaluator import MeasurementOptions as MeasurementOptions
from .function_evaluator import FunctionEvaluator as FunctionEvaluator
from .measurement_plan import MeasurementPlan as MeasurementPlan
