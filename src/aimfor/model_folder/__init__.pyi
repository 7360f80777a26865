from ._folder import load as load
from ._folder import load_model as load_model
from ._folder import read_tensors as read_tensors
from ._folder import save as save
from ._folder import save_model as save_model
from ._onnx import export_onnx as export_onnx
from ._schema import LoadedModel as LoadedModel
