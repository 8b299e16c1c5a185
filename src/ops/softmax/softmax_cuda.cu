#include "backend/backend.h"
extern "C" const rg_cuda_row rg_cuda_softmax[];
extern "C" const rg_cuda_row rg_cuda_softmax[8] = {};
