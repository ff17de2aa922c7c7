from .evaluator import Evaluator as Evaluator
from .function_evaluator import FunctionEvaluator as FunctionEvaluator
from .measurement_plan import MeasurementPlan as MeasurementPlan
from .torch.losses import OwnLoss as OwnLoss
