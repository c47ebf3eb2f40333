//! A workflow's data: typed at the user's side, erased inside the engine.

use crate::error::StepResult;
use latchwork_core::{BoxError, store::Encoded};
use serde::{Serialize, de::DeserializeOwned};
use std::{any::Any, marker::PhantomData, sync::Arc};

/// Data with its type erased.
pub type AnyData = dyn Any + Send + Sync;

/// The items of the for-each loops around a step, outermost first.
pub(crate) type Items = Arc<[Arc<AnyData>]>;

/// What can be a workflow's data, or an item of a for-each: anything that can be cloned and read from and written as JSON.
/// Implemented for all such types.
pub trait WorkflowData: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static> WorkflowData for T {}

/// What a closure of a step sees: `&Data` at the root of a workflow, `(&Data, &Item)` inside a for-each, one level of
/// pair more with each nested one. Implemented by the crate only.
pub trait Scope: sealed::Sealed + 'static {
    /// The workflow's data.
    type Data: WorkflowData;
    /// What a closure sees.
    type View<'a>;
    #[doc(hidden)]
    fn view<'a>(data: &'a AnyData, items: &'a [Arc<AnyData>]) -> Option<Self::View<'a>>;
}

mod sealed {
    pub trait Sealed {}
    impl<D: super::WorkflowData> Sealed for D {}
    impl<S, I> Sealed for super::Each<S, I> {}
}

impl<D: WorkflowData> Scope for D {
    type Data = D;
    type View<'a> = &'a D;

    fn view<'a>(data: &'a AnyData, _: &'a [Arc<AnyData>]) -> Option<&'a D> {
        data.downcast_ref()
    }
}

/// The scope inside a for-each over items of type `I`.
pub struct Each<S, I>(PhantomData<fn() -> (S, I)>);

impl<S, I> std::fmt::Debug for Each<S, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Each")
    }
}

impl<S: Scope, I: WorkflowData> Scope for Each<S, I> {
    type Data = S::Data;
    type View<'a> = (S::View<'a>, &'a I);

    fn view<'a>(data: &'a AnyData, items: &'a [Arc<AnyData>]) -> Option<Self::View<'a>> {
        let (last, around) = items.split_last()?;
        Some((S::view(data, around)?, last.downcast_ref()?))
    }
}

/// How data of one type is written, read, and made ready to be changed.
#[derive(Clone, Copy)]
pub(crate) struct DataType {
    pub(crate) encode: fn(&AnyData) -> Result<Encoded, BoxError>,
    pub(crate) decode: fn(&str) -> Result<Arc<AnyData>, BoxError>,
    /// Copies the data when somebody else still looks at it, so that it can be changed.
    pub(crate) unshare: fn(&mut Arc<AnyData>),
    /// Encodes a collection of items of this type as one JSON array.
    pub(crate) encode_all: fn(&[Arc<AnyData>]) -> Result<Encoded, BoxError>,
    pub(crate) decode_all: fn(&str) -> Result<Vec<Arc<AnyData>>, BoxError>,
}

impl std::fmt::Debug for DataType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DataType")
    }
}

const WRONG_TYPE: &str = "a value has another type than its definition says; please report this as a bug";

impl DataType {
    pub(crate) fn of<D: WorkflowData>() -> Self {
        Self {
            encode: |data| Ok(Encoded::of(data.downcast_ref::<D>().ok_or(WRONG_TYPE)?)?),
            decode: |json| Ok(Arc::new(serde_json::from_str::<D>(json)?)),
            unshare: |data| {
                if Arc::get_mut(data).is_none()
                    && let Some(typed) = data.downcast_ref::<D>()
                {
                    *data = Arc::new(typed.clone());
                }
            },
            encode_all: |items| {
                let typed: Option<Vec<&D>> = items.iter().map(|item| item.downcast_ref()).collect();
                Ok(Encoded::of(&typed.ok_or(WRONG_TYPE)?)?)
            },
            decode_all: |json| {
                Ok(serde_json::from_str::<Vec<D>>(json)?.into_iter().map(|item| Arc::new(item) as Arc<AnyData>).collect())
            },
        }
    }
}

/// A closure's view of the data; the error cannot happen with a definition of the builder's.
pub(crate) fn view<'a, S: Scope>(data: &'a AnyData, items: &'a [Arc<AnyData>]) -> StepResult<S::View<'a>> {
    S::view(data, items).ok_or_else(|| crate::StepError::permanent(WRONG_TYPE))
}

pub(crate) fn wrong_type() -> crate::StepError {
    crate::StepError::permanent(WRONG_TYPE)
}
