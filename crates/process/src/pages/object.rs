//! JSON objects whose fields are declared where their values are found.

use serde::Serialize;
use serde::ser::SerializeMap;

/// A JSON object of these fields, in this order; what is a [`Maybe`](crate::pages::Maybe) may be
/// left out.
#[macro_export]
macro_rules! object {
    ($( $field:ident $(: $value:expr)? ),+ $(,)?) => {{
        #[allow(non_camel_case_types, reason = "each field's type has the field's name")]
        struct Object<$($field),+> { $($field: $field),+ }

        #[allow(non_camel_case_types, reason = "as above")]
        impl<$($field: $crate::pages::PageField),+> ::serde::Serialize for Object<$($field),+> {
            fn serialize<S: ::serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                let mut map = out.serialize_map(None)?;
                $( $crate::pages::PageField::put(&self.$field, stringify!($field), &mut map)?; )+
                ::serde::ser::SerializeMap::end(map)
            }
        }

        Object { $($field $(: $value)?),+ }
    }};
}

/// What is left out of an object where there is none; otherwise none is `null`.
pub struct Maybe<T>(pub Option<T>);

/// What can be a field of an object.
pub trait PageField {
    /// Writes it, unless it is left out.
    fn put<M: SerializeMap>(&self, name: &'static str, map: &mut M) -> Result<(), M::Error>;
}

impl<T: Serialize> PageField for T {
    fn put<M: SerializeMap>(&self, name: &'static str, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry(name, self)
    }
}

impl<T: Serialize> PageField for Maybe<T> {
    fn put<M: SerializeMap>(&self, name: &'static str, map: &mut M) -> Result<(), M::Error> {
        self.0.iter().try_for_each(|it| map.serialize_entry(name, it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_in_order_and_what_is_not_there_is_left_out_or_null() {
        let (b, none) = ([1, 2], None::<u8>);
        let inner = object! { z: "of z" };
        let page = object! { inner, b, missing: Maybe(none), none, here: Maybe(Some(3)) };
        let text = serde_json::to_string(&page).expect("it is JSON");
        assert_eq!(text, r#"{"inner":{"z":"of z"},"b":[1,2],"none":null,"here":3}"#);
    }
}
