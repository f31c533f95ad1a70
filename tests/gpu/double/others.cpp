// The functions that need no model: those that a program may call without any effect here, and those that the fake driver
// does not have. A function cannot define another one by its name, so a macro does.
#include "counting.h"

extern "C" {

// Counted as `stub`, and done.
#define NAME(function)                  \
  int function() {                      \
    counting::note("stub", #function);  \
    return 0;                           \
  }
NAME(cudnnCreateCTCLossDescriptor)
NAME(cudnnCreateRNNDataDescriptor)
NAME(cudnnCreateRNNDescriptor)
NAME(cudnnCreateSpatialTransformerDescriptor)
NAME(cudnnDestroyActivationDescriptor)
NAME(cudnnDestroyCTCLossDescriptor)
NAME(cudnnDestroyConvolutionDescriptor)
NAME(cudnnDestroyDropoutDescriptor)
NAME(cudnnDestroyFilterDescriptor)
NAME(cudnnDestroyRNNDataDescriptor)
NAME(cudnnDestroyRNNDescriptor)
NAME(cudnnDestroySpatialTransformerDescriptor)
NAME(cudnnDestroyTensorDescriptor)
NAME(cudnnRestoreDropoutDescriptor)
NAME(cudnnSetActivationDescriptor)
NAME(cudnnSetCTCLossDescriptorEx)
NAME(cudnnSetCTCLossDescriptor_v9)
NAME(cudnnSetConvolutionGroupCount)
NAME(cudnnSetConvolutionMathType)
NAME(cudnnSetConvolutionNdDescriptor)
NAME(cudnnSetDropoutDescriptor)
NAME(cudnnSetFilterNdDescriptor)
NAME(cudnnSetPooling2dDescriptor)
NAME(cudnnSetRNNDataDescriptor)
NAME(cudnnSetRNNDescriptor_v8)
NAME(cudnnSetSpatialTransformerNdDescriptor)
NAME(cudnnSetTensorNdDescriptor)
#undef NAME

// Counted as `missing`, and refused: 801 is an error in every library, "not supported" in the runtime and the driver.
#define NAME(function)                     \
  int function() {                         \
    counting::note("missing", #function);  \
    return 801;                            \
  }
NAME(cuLinkAddData_v2)
NAME(cuLinkAddFile_v2)
NAME(cuLinkComplete)
NAME(cuLinkDestroy)
NAME(cuLinkCreate_v2)
NAME(cuMulticastGetGranularity)
NAME(cublasCdotc_v2)
NAME(cublasCdotu_v2)
NAME(cublasCgelsBatched)
NAME(cublasCgemmStridedBatched)
NAME(cublasCgemv_v2)
NAME(cublasCgeqrfBatched)
NAME(cublasCgetrfBatched)
NAME(cublasCgetrsBatched)
NAME(cublasCtrsmBatched)
NAME(cublasCtrsm_v2)
NAME(cublasDgelsBatched)
NAME(cublasDgeqrfBatched)
NAME(cublasDgetrfBatched)
NAME(cublasDgetrsBatched)
NAME(cublasDtrsmBatched)
NAME(cublasDtrsm_v2)
NAME(cublasSgelsBatched)
NAME(cublasSgeqrfBatched)
NAME(cublasSgetrfBatched)
NAME(cublasSgetrsBatched)
NAME(cublasStrsmBatched)
NAME(cublasStrsm_v2)
NAME(cublasZdotc_v2)
NAME(cublasZdotu_v2)
NAME(cublasZgelsBatched)
NAME(cublasZgemmStridedBatched)
NAME(cublasZgemv_v2)
NAME(cublasZgeqrfBatched)
NAME(cublasZgetrfBatched)
NAME(cublasZgetrsBatched)
NAME(cublasZtrsmBatched)
NAME(cublasZtrsm_v2)
NAME(cudaGraphAddNode)
NAME(cudaGraphConditionalHandleCreate)
NAME(cudaGraphDebugDotPrint)
NAME(cudnnCTCLoss)
NAME(cudnnCTCLoss_v8)
NAME(cudnnGetCTCLossWorkspaceSize)
NAME(cudnnGetCTCLossWorkspaceSize_v8)
NAME(cudnnGetFilterNdDescriptor)
NAME(cudnnGetRNNTempSpaceSizes)
NAME(cudnnGetRNNWeightParams)
NAME(cudnnGetRNNWeightSpaceSize)
NAME(cudnnGetTensorNdDescriptor)
NAME(cudnnRNNBackwardData_v8)
NAME(cudnnRNNBackwardWeights_v8)
NAME(cudnnRNNForward)
NAME(cudnnSpatialTfGridGeneratorBackward)
NAME(cudnnSpatialTfGridGeneratorForward)
NAME(cudnnSpatialTfSamplerBackward)
NAME(cudnnSpatialTfSamplerForward)
NAME(ncclDevCommCreate)
NAME(ncclDevCommDestroy)
NAME(ncclGetLsaMultimemDevicePointer)
NAME(ncclGetPeerDevicePointer)
NAME(ncclPutSignal)
NAME(ncclSignal)
NAME(ncclWaitSignal)
#undef NAME
}
