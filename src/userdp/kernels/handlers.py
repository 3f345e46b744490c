"""What XLA calls, compiled by Numba when it is first needed and kept for the next time.

Each is an XLA_FFI_Handler, version 0.1 of ``xla/ffi/api/c_api.h``, and answers 0 for no error. Of XLA_FFI_CallFrame's
words the second is asked for at registration (a structure whose fourth word points to the version), the tenth leads to
the arguments and the fifteenth to the results. Of an XLA_FFI_Buffer's words the fourth points to the data, the sixth to
the shape.
"""

# mypy: ignore-errors

import numpy as np
from numba import cfunc, njit, types
from numba.extending import intrinsic

from userdp.kernels import byte_rows, crowds, float_rows
from userdp.kernels.slopes import OPTIONS

# What Numba keeps is made again only when this file changes, so this line says what the others were: the CRC-32 of the
# other files of this folder but __init__.py and xla.py, in the order of their names, one after the other.
OTHER_FILES = 3602094365
LONGEST_ROW, LONGEST_VECTOR = float_rows.LONGEST_ROW, crowds.LONGEST_VECTOR
# How rows are stored, by number.
FLOATS, HALVES, BYTES = range(3)


def _pointer_to(kind):
    """Return what turns an address into a pointer."""

    @intrinsic
    def pointer(context, address):
        def build(context, builder, signature, arguments):
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), build

    return pointer


words, _integers = _pointer_to(types.int64), _pointer_to(types.int32)
doubles, floats, halves, octets = (
    _pointer_to(kind) for kind in (types.float64, types.float32, types.uint16, types.uint8)
)


@njit(**OPTIONS)
def _is_registration(call):
    """Whether XLA asks what the handler is made for; it is told."""
    if call[1] == 0:
        return False
    metadata = _integers(words(call[1])[3])
    metadata[6], metadata[7], metadata[8] = 0, 1, 0  # major, minor, no traits
    return True


@njit(**OPTIONS)
def _data(buffers, number):
    """Return the address of a buffer's data."""
    return words(buffers[number])[3]


@cfunc(types.int64(types.int64), cache=True, **OPTIONS)
def glm_gradients(frame):
    """Compute the gradients of some users, of whom XLA has made a result."""
    call = words(frame)
    if _is_registration(call):
        return 0
    arguments, result = words(call[9]), words(words(call[14])[0])
    x, y, weights = _data(arguments, 0), floats(_data(arguments, 1)), floats(_data(arguments, 2))
    theta, question = floats(_data(arguments, 3)), _integers(_data(arguments, 5))
    kind, first, storage = question[0], np.int64(question[1]), question[2]
    offsets, constants = words(_data(arguments, 4) + 8 * first), floats(_data(arguments, 6))
    shape, gradients, a, b = words(result[5]), floats(result[3]), constants[0], constants[1]
    n, d = shape[0], shape[1]
    if storage == BYTES:
        items = words(_data(arguments, 2) + 8 * first)
        units = floats(_data(arguments, 7) + 4 * first * (d + -d % 16))
        byte_rows.sum_users(n, d, octets(x), y, items, theta, offsets, kind, a, b, units, gradients)
    elif storage == HALVES:
        float_rows.sum_users(n, d, halves(x), y, weights, theta, offsets, kind, a, b, gradients)
    else:
        float_rows.sum_users(n, d, floats(x), y, weights, theta, offsets, kind, a, b, gradients)
    return 0


@cfunc(types.int64(types.int64), cache=True, **OPTIONS)
def crowd(frame):
    """Survey some users."""
    call = words(frame)
    if _is_registration(call):
        return 0
    arguments, result = words(call[9]), words(words(call[14])[0])
    centre, lattice, users = (
        doubles(_data(arguments, 1)),
        doubles(_data(arguments, 2)),
        words(_data(arguments, 3)),
    )
    d = words(result[5])[0] - 2
    x, found = floats(_data(arguments, 0) + 4 * users[0] * d), doubles(result[3])
    crowds.survey(users[1] - users[0], d, x, lattice[0], lattice[1], centre, found)
    return 0
