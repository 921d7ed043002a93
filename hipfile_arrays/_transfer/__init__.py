"""The way down: one ``fromfile`` followed to the bytes.

1. ``rawfile`` turns NumPy's arguments into an open file, a range of its bytes and an array.
2. `array` asks the array what it is: library, dtype, shape, strides, device, and the stream that
   its library is on (``DeviceArray``); or makes a new one in the library of ``like``.
3. `memory` asks the GPU runtime about the pointer: is it ``hipMemoryTypeDevice``, and does the
   whole extent lie in one allocation? Host, pinned, managed and foreign memory end here.
4. `buffers` knows which memory is registered with hipFile; such a buffer was checked when it was
   registered, and needs no lookup now.
5. `fileinfo` asks the file: kind, size, file system, O_DIRECT alignment.
6. `plan` decides, from those facts and the settings alone, which bytes take which path, and why.
7. `run` hands the plan to the native engine, which moves the bytes without the GIL, and turns its
   outcome into a count or one exception.
8. What bytes alone cannot do is done on the GPU: `records` takes the file's items apart into
   columns, `slab` turns an index into ranges, and `convert` has the bytes brought by the steps
   above and the items put in place by `kernels`.
9. A `File` asks for all of an array (`exact`), or for a transfer that takes its place in a stream
   while the caller goes on (`asynchronous`).

Each step takes a small frozen value and gives one (`values`); nothing calls back up.
"""
