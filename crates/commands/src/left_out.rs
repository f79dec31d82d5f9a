//! Commands whose feature this build is without: they take any arguments, and say so.

/// A command by the name of its feature.
#[macro_export]
macro_rules! left_out {
    ($name:ident) => {
        mod $name {
            /// Whatever it would be told.
            #[derive(Debug, clap::Args)]
            #[allow(unreachable_pub, reason = "whether the command line is public differs")]
            #[command(about = concat!("Not in this build, for want of the feature ", stringify!($name)))]
            pub struct Args {
                #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
                _any: Vec<std::ffi::OsString>,
            }

            pub(super) fn run(_: &Args) -> Result<(), $crate::Failure> {
                Err($crate::Failure::bad_input(concat!(
                    "this ringgate was built without the feature ",
                    stringify!($name),
                    ", which this command needs"
                )))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    left_out!(top);

    /// As a command line reads it.
    #[derive(Debug, Parser)]
    enum Command {
        Top(top::Args),
    }

    #[test]
    fn a_command_that_is_left_out_names_its_feature_whatever_it_is_told() {
        for args in [&["ringgate", "top"][..], &["ringgate", "top", "--once", "x", "-y"]] {
            let Command::Top(args) = Command::parse_from(args);
            let why = top::run(&args).expect_err("it is left out").to_string();
            assert_eq!(
                why,
                "this ringgate was built without the feature top, which this command needs"
            );
        }
        let help = Command::try_parse_from(["ringgate", "top", "--help"]).expect_err("help");
        assert!(help.to_string().contains("for want of the feature top"), "{help}");
    }
}
