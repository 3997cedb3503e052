//! The examples of RFC 5261, sections 4.3 to 4.5 and appendix A, by their numbers, and that of RFC 7351: each target, each position,
//! each kind of node. Then what the other sections say, and what independent implementations test.
//!
//! Documents of examples are short where the rest of them changes nothing. A result is compared byte by byte; where the specification
//! leaves the bytes open, with what is tried first.

use super::*;

fn patched(file: &str, operations: &str) -> Result<String, PatchError> {
    Ok(all(file, &format!("<diff>{operations}</diff>"))?.swap_remove(0))
}

fn all(file: &str, patch: &str) -> Result<Vec<String>, PatchError> {
    apply(file, patch, &mut Budget::new(MAX_WORK))
}

#[test]
fn operations_are_those_of_the_specification() {
    for (file, operations, expected) in [
        // A.1: an element.
        (
            "<doc>\n  <note>This is a sample document</note>\n</doc>",
            r#"<add sel="doc"><foo id="ert4773">This is a new child</foo></add>"#,
            "<doc>\n  <note>This is a sample document</note>\n<foo id=\"ert4773\">This is a new child</foo></doc>",
        ),
        // A.2: an attribute.
        (
            r#"<doc><note>x</note><foo id="ert4773">y</foo></doc>"#,
            r#"<add sel="doc/foo[@id='ert4773']" type="@user">Bob</add>"#,
            r#"<doc><note>x</note><foo id="ert4773" user="Bob">y</foo></doc>"#,
        ),
        // A.3: a prefixed namespace declaration.
        (
            "<doc><note>x</note></doc>",
            r#"<add sel="doc" type="namespace::pref">urn:ns:xxx</add>"#,
            r#"<doc xmlns:pref="urn:ns:xxx"><note>x</note></doc>"#,
        ),
        // A.4: a comment before an element.
        (
            "<doc>\n  <foo id=\"ert4773\">y</foo>\n</doc>",
            r#"<add sel="doc/foo[@id='ert4773']" pos="before"><!-- comment --></add>"#,
            "<doc>\n  <!-- comment --><foo id=\"ert4773\">y</foo>\n</doc>",
        ),
        // A.5: several nodes.
        (
            "<doc>\n  <foo id=\"ert4773\">y</foo>\n</doc>",
            "<add sel=\"doc\"><foo id=\"a\">1</foo>\n  <!-- c -->\n  <foo id=\"b\">2</foo>\n</add>",
            "<doc>\n  <foo id=\"ert4773\">y</foo>\n<foo id=\"a\">1</foo>\n  <!-- c -->\n  <foo id=\"b\">2</foo>\n</doc>",
        ),
        // A.6: an element is replaced.
        (
            r#"<doc><foo a="1">x</foo></doc>"#,
            r#"<replace sel="doc/foo[@a='1']"><bar a="2"/></replace>"#,
            r#"<doc><bar a="2"/></doc>"#,
        ),
        // A.7: the value of an attribute.
        (
            "<doc a='test'><foo a=\"1\">x</foo></doc>",
            r#"<replace sel="doc/@a">new "value's"</replace>"#,
            "<doc a='new \"value&apos;s\"'><foo a=\"1\">x</foo></doc>",
        ),
        // A.8: the URI of a declaration.
        (
            r#"<doc xmlns:pref="urn:test"><foo/></doc>"#,
            r#"<replace sel="doc/namespace::pref">urn:new:xxx</replace>"#,
            r#"<doc xmlns:pref="urn:new:xxx"><foo/></doc>"#,
        ),
        // A.9 and A.10: a comment, and an instruction.
        (
            "<doc><foo/><!-- old --><?bar x?></doc>",
            "<replace sel=\"doc/comment()[1]\"><!-- new --></replace><replace sel='doc/processing-instruction(\"bar\")'><?foobar y?></replace>",
            "<doc><foo/><!-- new --><?foobar y?></doc>",
        ),
        // A.11: a text.
        (
            "<doc><foo a=\"1\">This is a text <b/> tail</foo></doc>",
            r#"<replace sel="doc/foo/text()[1]">The new &lt;text&gt;</replace>"#,
            "<doc><foo a=\"1\">The new &lt;text&gt;<b/> tail</foo></doc>",
        ),
        // A.12: an element with the white space after it.
        (
            "<doc>\n  <foo a=\"1\">x</foo>\n  <bar/>\n</doc>",
            r#"<remove sel="doc/foo[@a='1']" ws="after"/>"#,
            "<doc>\n  <bar/>\n</doc>",
        ),
        (
            "<doc>\n  <foo a=\"1\">x</foo>\n  <bar/>\n</doc>",
            r#"<remove sel="doc/bar" ws="before"/>"#,
            "<doc>\n  <foo a=\"1\">x</foo>\n</doc>",
        ),
        (
            "<doc> <foo/> </doc>",
            r#"<remove sel="doc/foo" ws="both"/>"#,
            "<doc></doc>",
        ),
        // A.13 to A.17: an attribute, a declaration, a comment, an instruction and a text.
        (
            r#"<doc a="foo"  b = "c"><foo/></doc>"#,
            r#"<remove sel="doc/@a"/>"#,
            r#"<doc  b = "c"><foo/></doc>"#,
        ),
        (
            r#"<doc xmlns:pref="urn:x"><foo/></doc>"#,
            r#"<remove sel="doc/namespace::pref"/>"#,
            "<doc><foo/></doc>",
        ),
        (
            "<doc><!-- c --><?bar?>text</doc>",
            "<remove sel=\"doc/comment()[1]\"/><remove sel='doc/processing-instruction(\"bar\")'/><remove sel=\"doc/text()\"/>",
            "<doc></doc>",
        ),
        // Positions, and an element that is one tag.
        (
            "<doc><a/><b />x</doc>",
            "<add sel=\"doc\" pos=\"prepend\">new </add><add sel=\"doc/a\" pos=\"after\"><c/></add><add sel=\"doc/b\">in</add>",
            "<doc>new <a/><c/><b>in</b>x</doc>",
        ),
        // Before and after the root.
        (
            "<?xml version=\"1.0\"?>\n<doc/>\n",
            "<add sel=\"doc\" pos=\"before\"><?x y?></add><add sel=\"*\" pos=\"after\"><!--end--></add>",
            "<?xml version=\"1.0\"?>\n<?x y?><doc/><!--end-->\n",
        ),
        // Character data and references are a text.
        (
            "<doc>a<![CDATA[<b>]]>&amp;</doc>",
            r#"<replace sel="doc/text()">c</replace>"#,
            "<doc>c</doc>",
        ),
        ("<doc>x</doc>", "", "<doc>x</doc>"),
    ] {
        assert_eq!(
            patched(file, operations).as_deref(),
            Ok(expected),
            "{operations}"
        );
    }
}

/// Appendix A.18, whose file has other prefixes than its patch. The last element has no content afterwards: that is written as one tag
/// or as two.
#[test]
fn several_operations_with_namespaces_are_applied() {
    let file = r#"<?xml version="1.0" encoding="UTF-8"?>
<doc xmlns="urn:ns:one"
     xmlns:z="urn:ns:two">
  <note>This is a sample document</note>
  <elem a="foo">
    <child/>
  </elem>
  <elem a="bar">
    <z:child/>
  </elem>
</doc>
"#;
    let patch = r#"<?xml version="1.0" encoding="UTF-8"?>
<p:diff xmlns="urn:ns:one"
        xmlns:y="urn:ns:two"
        xmlns:p="urn:ns:diff">

  <p:add sel="doc/elem[@a='foo']">  <!-- This is a new child -->
    <child id="ert4773">
      <y:node/>
    </child>
  </p:add>

  <p:replace sel="doc/note/text()">Patched doc</p:replace>

  <p:remove sel="*/elem[@a='bar']/y:child" ws="both"/>

  <p:add sel="*/elem[@a='bar']" type="@b">new attr</p:add>
</p:diff>
"#;
    let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<doc xmlns="urn:ns:one"
     xmlns:z="urn:ns:two">
  <note>Patched doc</note>
  <elem a="foo">
    <child/>
    <!-- This is a new child -->
    <child id="ert4773">
      <z:node/>
    </child>
  </elem>
  <elem a="bar" b="new attr"></elem>
</doc>
"#;
    let one_tag = expected.replace("new attr\"></elem>", "new attr\"/>");
    assert_eq!(all(file, patch).unwrap(), [expected, &one_tag]);
    // RFC 7351 has the same operations in its own document.
    let registered = patch.replace("urn:ns:diff", "urn:ietf:rfc:7351");
    let registered = registered.replace("p:diff", "p:patch");
    assert_eq!(all(file, &registered).unwrap(), [expected, &one_tag]);
}

/// What the specification leaves open, as programs write it that write the whole document anew.
#[test]
fn second_result_is_as_programs_write_it() {
    for (file, operations, first, second) in [
        (
            r#"<doc a="1"><b/></doc>"#,
            r#"<remove sel="doc/b"/>"#,
            r#"<doc a="1"></doc>"#,
            r#"<doc a="1"/>"#,
        ),
        (
            "<doc><b>x</b></doc>",
            r#"<replace sel="doc/b/text()[1]"></replace><add sel="doc/b" type="@c">d</add>"#,
            r#"<doc><b c="d"></b></doc>"#,
            r#"<doc><b c="d"/></doc>"#,
        ),
        (
            "<doc><b>x</b></doc>",
            r#"<remove sel="doc/b/text()"/><add sel="doc/b">y</add><remove sel="doc/b"/>"#,
            "<doc></doc>",
            "<doc/>",
        ),
        (
            "<doc xmlns:k='urn:k'><b>x</b></doc>",
            r#"<add sel="doc"><c></c><d /><e>y</e></add>"#,
            "<doc xmlns:k='urn:k'><b>x</b><c></c><d /><e>y</e></doc>",
            "<doc xmlns:k='urn:k'><b>x</b><c/><d/><e>y</e></doc>",
        ),
        // Python's ElementTree has a space in such tags.
        (
            "<doc><b /><b>x</b></doc>",
            r#"<add sel="doc"><c><d n="1"/></c></add><replace sel="doc/b[2]/text()"></replace>"#,
            r#"<doc><b /><b></b><c><d n="1"/></c></doc>"#,
            r#"<doc><b /><b /><c><d n="1" /></c></doc>"#,
        ),
    ] {
        let patch = format!("<diff>{operations}</diff>");
        assert_eq!(all(file, &patch).unwrap(), [first, second], "{operations}");
    }
    let one = all("<doc> <b/> </doc>", r#"<diff><remove sel="doc/b"/></diff>"#);
    assert_eq!(one.unwrap(), ["<doc>  </doc>"]);
}

/// Cases that implementations in Java and C# test, too.
#[test]
fn cases_of_other_implementations_have_their_results() {
    for (file, operations, expected) in [
        (
            "<doc>This is <bar/> a text node.</doc>",
            r#"<add sel="*/text()[2]" pos="after">new<bar/>elem</add>"#,
            "<doc>This is <bar/> a text node.new<bar/>elem</doc>",
        ),
        (
            "<doc>This is <bar/> a text node.</doc>",
            r#"<add sel="*/text()[2]" pos="before">new<bar/>elem</add>"#,
            "<doc>This is <bar/>new<bar/>elem a text node.</doc>",
        ),
        (
            "<doc>\n  <note>x</note>\n</doc>",
            "<add sel='doc/note' pos='after'><foo id='1'>y</foo></add><add sel='doc' pos='prepend'><a/></add>",
            "<doc><a/>\n  <note>x</note><foo id='1'>y</foo>\n</doc>",
        ),
        (
            "<doc/>",
            r#"<add sel="doc"><x:foo xmlns:x="urn:x"/></add>"#,
            r#"<doc><x:foo xmlns:x="urn:x"/></doc>"#,
        ),
        (
            r#"<doc><foo a="1">sample</foo></doc>"#,
            r#"<replace sel="doc"><cod><foo a="2">other</foo></cod></replace>"#,
            r#"<cod><foo a="2">other</foo></cod>"#,
        ),
        (
            r#"<doc xmlns:b="urn:t"><foo a="1">sample</foo></doc>"#,
            r#"<replace xmlns:a="urn:t" sel="*/foo"><a:bar><a:foo a:size="2"/></a:bar></replace>"#,
            r#"<doc xmlns:b="urn:t"><b:bar><b:foo b:size="2"/></b:bar></doc>"#,
        ),
        (
            "<doc> <foo/>    </doc>",
            r#"<remove sel="doc/foo" ws="after"/>"#,
            "<doc> </doc>",
        ),
    ] {
        assert_eq!(
            patched(file, operations).as_deref(),
            Ok(expected),
            "{operations}"
        );
    }
}
