//! Enums whose values have names or sentences, numbers that stand in an order, and fields that are
//! shown: each is a row of one list, so that nothing has to be said of it twice.

/// Declares an enum: each value with its name in metrics, logs and documents, and behind `=>` with
/// the sentence that people are told, if they are.
#[macro_export]
macro_rules! named {
    (
        $(#[$about:meta])* $vis:vis enum $type:ident;
        $( $(#[$doc:meta])* $value:ident = $name:literal ),+ $(,)?
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        $vis enum $type { $( $(#[$doc])* $value ),+ }

        #[allow(dead_code, reason = "few need all of it")]
        impl $type {
            /// How many there are.
            $vis const COUNT: usize = Self::NAMES.len();

            /// All of them, in the order of the list.
            $vis const ALL: [Self; Self::COUNT] = [ $( Self::$value ),+ ];

            /// The names of all, in the same order.
            $vis const NAMES: [&'static str; [$( $name ),+].len()] = [ $( $name ),+ ];

            /// The name in metrics, logs and documents.
            $vis const fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }

            /// The one of this name.
            $vis fn named(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|it| it.name() == name)
            }
        }
    };
    (
        $(#[$about:meta])* $vis:vis enum $type:ident;
        $( $(#[$doc:meta])* $value:ident = $name:literal => $sentence:literal ),+ $(,)?
    ) => {
        $crate::named! {
            $(#[$about])* $vis enum $type; $( $(#[$doc])* $value = $name ),+
        }

        impl $type {
            /// What people are told of it.
            $vis const fn sentence(self) -> &'static str {
                [$( $sentence ),+][self as usize]
            }
        }
    };
}

/// Declares an error: each of its reasons with the sentence that people are told. What a reason
/// carries has a name, by which the sentence may say it.
#[macro_export]
macro_rules! told {
    (
        $(#[$about:meta])* $vis:vis enum $type:ident;
        $(
            $(#[$doc:meta])* $reason:ident $(( $($part:ident: $of:ty),+ ))? = $sentence:literal
        ),+ $(,)?
    ) => {
        $(#[$about])*
        $vis enum $type { $( $(#[$doc])* $reason $(( $($of),+ ))? ),+ }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self { $( Self::$reason $(( $($part),+ ))? => write!(f, $sentence) ),+ }
            }
        }

        impl ::std::error::Error for $type {}
    };
}

/// Shows a type by these of its fields: the others are secret, many, or nothing to look at.
#[macro_export]
macro_rules! shown_by {
    ($type:ident { $($field:ident),* }) => {
        impl ::std::fmt::Debug for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let mut shown = f.debug_struct(stringify!($type));
                shown $(.field(stringify!($field), &self.$field))*.finish_non_exhaustive()
            }
        }
    };
}

/// Declares a struct of numbers that are counted, which come and go as an array in the order of the
/// list.
#[macro_export]
macro_rules! numbered {
    (
        $(#[$about:meta])* $vis:vis struct $type:ident;
        $( $(#[$doc:meta])* $field:ident ),+ $(,)?
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis struct $type { $( $(#[$doc])* pub $field: u64 ),+ }

        impl $type {
            /// How many numbers there are.
            pub const COUNT: usize = [$( stringify!($field) ),+].len();

            /// All of them.
            pub const fn numbers(&self) -> [u64; Self::COUNT] {
                [$( self.$field ),+]
            }

            /// All of them, by what they are called here.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$( stringify!($field) ),+].into_iter().zip(self.numbers())
            }

            /// Those numbers again.
            pub const fn of(numbers: [u64; Self::COUNT]) -> Self {
                let [$( $field ),+] = numbers;
                Self { $( $field ),+ }
            }

            /// Adds what another has counted.
            pub const fn merge(&mut self, other: &Self) {
                $( self.$field += other.$field; )+
            }
        }

        $crate::carried!($type { $( $field ),+ });
    };
}
