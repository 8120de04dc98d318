"""The OData room: reads business data as OData v4, to the letter of its protocol, URL conventions and JSON format."""
