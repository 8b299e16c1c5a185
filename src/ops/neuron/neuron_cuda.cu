#include "backend/backend.h"
extern "C" const rg_cuda_row rg_cuda_neuron[];
extern "C" const rg_cuda_row rg_cuda_neuron[8] = {};
