# DLPack's structures and its exchange table, after the specification (version 1.3), as far as they are used here.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    DLPACK_MAJOR = 1
    DEVICE_CPU = 1
    DEVICE_CUDA_HOST = 3
    CODE_INT = 0
    CODE_UINT = 1

cdef struct DLPackVersion:
    uint32_t major
    uint32_t minor

cdef struct DLDevice:
    int32_t device_type
    int32_t device_id

cdef struct DLDataType:
    uint8_t code
    uint8_t bits
    uint16_t lanes

cdef struct DLTensor:
    void* data
    DLDevice device
    int32_t ndim
    DLDataType dtype
    int64_t* shape
    int64_t* strides
    uint64_t byte_offset

cdef struct DLManagedTensorVersioned:
    DLPackVersion version
    void* manager_ctx
    void (*deleter)(DLManagedTensorVersioned*) noexcept
    uint64_t flags
    DLTensor dl_tensor

cdef struct DLPackExchangeAPIHeader:
    DLPackVersion version
    DLPackExchangeAPIHeader* prev_api

cdef struct DLPackExchangeAPI:
    DLPackExchangeAPIHeader header
    void* managed_tensor_allocator
    void* managed_tensor_from_py_object_no_sync
    int (*managed_tensor_to_py_object_no_sync)(DLManagedTensorVersioned*, void**) except -1
    int (*dltensor_from_py_object_no_sync)(void*, DLTensor*) noexcept
    void* current_work_stream
