//! The description of the API, for generators of clients and for people.

/// An `OpenAPI` 3.1 document, as JSON.
pub const DOCUMENT: &str = include_str!("openapi.json");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::http::routes::Route;
    use crate::refusal::Refusal;

    fn document() -> Value {
        serde_json::from_str(DOCUMENT).expect("it is JSON")
    }

    #[test]
    fn every_path_is_described_with_its_method_and_its_scope() {
        let document = document();
        let paths = document["paths"].as_object().expect("paths");
        assert_eq!(paths.len(), Route::ALL.len());
        for (path, route) in Route::ALL {
            let method = if route.is_posted() { "post" } else { "get" };
            let operation = &paths[*path][method];
            assert!(operation["operationId"].is_string(), "{path}");
            assert_eq!(operation["security"].is_array(), route.scope().is_some(), "{path}");
            assert!(operation["responses"]["200"].is_object(), "{path}");
        }
    }

    #[test]
    fn every_refusal_is_described() {
        let document = document();
        let words = &document["components"]["schemas"]["Refusal"]["properties"]["error"]["enum"];
        let described: BTreeSet<_> =
            words.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        let known: BTreeSet<_> = Refusal::ALL.iter().map(|it| it.word()).collect();
        assert_eq!(described, known);
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let mut open = vec![&document];
        let mut count = 0;
        while let Some(value) = open.pop() {
            match value {
                Value::Object(fields) => {
                    if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
                        let pointer = target.strip_prefix('#').expect("within the document");
                        assert!(document.pointer(pointer).is_some(), "{target}");
                        count += 1;
                    }
                    open.extend(fields.values());
                }
                Value::Array(list) => open.extend(list),
                _ => {}
            }
        }
        assert!(count > 5);
    }
}
