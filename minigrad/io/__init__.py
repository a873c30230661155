"""Files: written atomically, read within bounds. Arrays as safetensors, plain data as JSON."""

from .arrays import *
from .atomic import write_atomically as write_atomically
from .json import read_json as read_json
from .json import write_json as write_json
from .safetensors import SafetensorsFile as SafetensorsFile
from .safetensors import write_safetensors as write_safetensors
