package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	yaml "go.yaml.in/yaml/v3"
)

// yamlOf returns the JSON document as YAML, its keys in their order and its numbers by their text.
func yamlOf(document []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	node, err := yamlNode(d)
	if err != nil {
		return nil, fmt.Errorf("as YAML: %w", err)
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(node); err != nil {
		return nil, fmt.Errorf("as YAML: %w", err)
	}
	return b.Bytes(), nil
}

func yamlNode(d *json.Decoder) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, unexpectedEOF(err)
	}
	switch t := token.(type) {
	case json.Delim:
		return yamlCollection(d, t)
	case json.Number:
		// Without a tag the text stands as it is; with one, numbers that YAML's own types cannot hold would be written with it.
		return &yaml.Node{Kind: yaml.ScalarNode, Value: t.String()}, nil
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
	default:
		n := &yaml.Node{}
		return n, n.Encode(t)
	}
}

func yamlCollection(d *json.Decoder, open json.Delim) (*yaml.Node, error) {
	node := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	if open == '{' {
		node = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	}
	for d.More() {
		child, err := yamlNode(d)
		if err != nil {
			return nil, err
		}
		node.Content = append(node.Content, child)
		if open == '[' {
			continue
		}
		value, err := yamlNode(d)
		if err != nil {
			return nil, err
		}
		node.Content = append(node.Content, value)
	}
	if len(node.Content) == 0 {
		node.Style = yaml.FlowStyle
	}
	_, err := d.Token()
	return node, unexpectedEOF(err)
}

func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
