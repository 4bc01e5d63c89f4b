cdef class Outstanding:
    # The slots or page ids as they are, or will be once the copy has arrived; None for the end of a group.
    cdef object values
    cdef object arrival
    # The group of frees that it is part of, or ends; None where there is none.
    cdef list group
    cdef bint by_slots
    cdef bint partial
    cdef Outstanding next
