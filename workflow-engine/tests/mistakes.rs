//! The commonest mistakes do not compile, and the compiler says what is wrong.

#[test]
fn common_mistakes_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
